package v3

// Hub marks the version that the others convert to and from.
func (*Entity) Hub() {}
