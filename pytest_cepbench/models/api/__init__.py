"""Models behind an OpenAI-compatible server: describers, judges and generators over HTTP.

`openai:MODEL?base_url=URL&weights=FOLDER` names one. Binding needs neither the server nor its key
nor the HTTP client: a run whose results are all in the store sends no request.
"""
