"""Reports: results of cases as text, HTML, Markdown, JSON and JUnit. Nothing is computed here."""
