"""GenEval, and MGG over generations."""
