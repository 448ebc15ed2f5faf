"""OpenING's files: questions with gold answers, answers of models, verdicts, names of tasks."""
