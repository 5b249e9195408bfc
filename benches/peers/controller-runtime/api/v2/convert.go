package v2

import (
	"sigs.k8s.io/controller-runtime/pkg/conversion"

	"portcullis.dev/benches/controller-runtime/api/v3"
)

// ConvertTo writes this object as the hub.
func (entity *Entity) ConvertTo(to conversion.Hub) error {
	hub := to.(*v3.Entity)
	hub.ObjectMeta = entity.ObjectMeta
	hub.Spec.Spec = entity.Spec.Spec
	hub.Status = entity.Status
	hub.Spec.Contact.Email = entity.Spec.ContactEmail
	hub.Spec.Firstname, hub.Spec.Lastname = entity.Spec.Firstname, entity.Spec.Lastname
	return nil
}

// ConvertFrom reads this object from the hub.
func (entity *Entity) ConvertFrom(from conversion.Hub) error {
	hub := from.(*v3.Entity)
	entity.ObjectMeta = hub.ObjectMeta
	entity.Spec.Spec = hub.Spec.Spec
	entity.Status = hub.Status
	entity.Spec.ContactEmail = hub.Spec.Contact.Email
	entity.Spec.Firstname, entity.Spec.Lastname = hub.Spec.Firstname, hub.Spec.Lastname
	return nil
}
