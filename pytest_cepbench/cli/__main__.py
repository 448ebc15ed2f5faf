"""`python -m pytest_cepbench.cli`, the command where its script is not on the path."""

from __future__ import annotations

import sys

from pytest_cepbench.cli import main

if __name__ == "__main__":
    sys.exit(main())
