"""Settings shared by the project's own tests and its suites."""

pytest_plugins = ["pytester"]
