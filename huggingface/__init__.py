"""Hugging Face's models: their configs as specs, their weights both ways."""
