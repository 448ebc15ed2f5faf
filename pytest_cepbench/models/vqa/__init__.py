"""VQA models: answers to questions about pictures and texts, as probabilities."""
