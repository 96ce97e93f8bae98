"""Convert models from and to Hugging Face, PyTorch, ONNX and CTranslate2."""
