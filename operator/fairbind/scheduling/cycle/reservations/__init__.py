"""Reservations: what is kept for a tenant that is rightfully next, from one cycle to the next."""
