"""Servers that a run starts: stand-ins for vLLM and SGLang, and `transformers serve` for real."""
