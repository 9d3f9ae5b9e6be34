"""HTTPS connections and proxies, independent of the marketplace's interface."""
