"""HTTPS to any service: connections, proxies, and what certainly never left. It knows nothing of the marketplace."""
