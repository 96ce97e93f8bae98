"""Serving trained models over HTTP: the OpenAI and LibreTranslate conventions."""
