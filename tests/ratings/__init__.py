"""People's ratings: the format, what people are shown, and the server of their pages."""
