"""Models over HTTP: an OpenAI-compatible API, and a page that looks inside the model."""
