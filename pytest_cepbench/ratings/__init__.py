"""Ratings by people: what was asked, of whom, and every answer, in a folder of text files.

`records` and `folder` are the format, `items` writes a study, and the rest serves it to people.
"""
