"""Receipts: what a validation run did, kept so that anybody can check it, compare it and take a trial up again."""
