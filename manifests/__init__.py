"""Ollama's model store: names, manifests, blobs, GGUF metadata, fingerprints and what a manifest bundles."""
