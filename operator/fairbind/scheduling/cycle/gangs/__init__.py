"""Groups of tasks whose minimum is placed together."""
