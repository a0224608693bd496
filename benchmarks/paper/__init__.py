"""The paper's tables and figures again: the service's own routing policies drive a cost model of a cluster."""
