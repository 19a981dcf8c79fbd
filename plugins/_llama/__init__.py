"""What the llama drafter and the llama verifier share: libllama, its models, contexts and tokenizers."""
