"""Serve trained models over HTTP with the APIs of OpenAI and LibreTranslate."""
