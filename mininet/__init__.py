"""The lab: a whole data center on one machine, in private namespaces."""
