"""The state of a cluster: objects, tenancy, filters, cache and the rules of the loop, without I/O."""
