"""ik_llama.cpp as ik-llama-cpp-python ships it: library, model, context, tokenizer and grammars."""
