"""What the commands share: the application, option groups, error messages, plots and the choice of streams."""
