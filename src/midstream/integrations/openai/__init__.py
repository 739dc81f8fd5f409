"""The openai SDK: its clients, its calls from request to response, and its stream objects."""
