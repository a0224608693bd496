"""Small nodes on one machine: hosts are network namespaces with their own bandwidth and share of the CPU."""
