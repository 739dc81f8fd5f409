"""What tests share: servers, clients, records made by hand, pages of metrics, environments."""
