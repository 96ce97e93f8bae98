"""From text to batches: tokenizers, corpora, a user's own files."""
