"""The model: its shape, its decoder, and the readers of its weights and tokenizer."""
