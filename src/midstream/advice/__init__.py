"""From records to limits: how long answers may get, how many may run at once, and which flag says so. Pure."""
