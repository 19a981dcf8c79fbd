"""Machines that compute layers for this one, through llama.cpp's RPC engine: how they are named and looked at.

libllama ends the whole process where a far end is missing, speaks another protocol or is lost. So what can be known is
known before it connects.
"""
