"""From text to batches: tokenizers, corpora, and the user's own files."""
