"""Teaching: topics explained next to our own code, the articles' pictures."""
