"""The runner: one process for each loaded model, which speaks llama-server's protocol."""
