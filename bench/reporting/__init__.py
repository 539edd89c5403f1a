"""The report of a run: run.py reads it, charts.py draws, page.py and markdown.py write."""
