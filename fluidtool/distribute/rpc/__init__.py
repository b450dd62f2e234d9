"""How trainers and parameter servers talk: messages on the wire, a gRPC service and its client, and what guards them."""
