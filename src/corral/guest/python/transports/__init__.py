"""Message formats of Corral's protocols, for programs elsewhere. Each is joined with the client to one file."""
