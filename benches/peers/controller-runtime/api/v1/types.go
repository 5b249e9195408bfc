// Package v1 is entity.example.com/v1.
// +kubebuilder:object:generate=true
// +groupName=entity.example.com
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portcullis.dev/benches/controller-runtime/api/shared"
)

// EntitySpec is what is wanted.
type EntitySpec struct {
	// Name is "First Last".
	Name         string `json:"name,omitempty"`
	ContactEmail string `json:"contactEmail,omitempty"`

	shared.Spec `json:",inline"`
}

// Entity is somebody with a name.
// +kubebuilder:object:root=true
type Entity struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   EntitySpec    `json:"spec"`
	Status shared.Status `json:"status,omitzero"`
}

// EntityList is a list of them.
// +kubebuilder:object:root=true
type EntityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Entity `json:"items"`
}

// AddToScheme registers the version.
func AddToScheme(scheme *runtime.Scheme) error {
	version := schema.GroupVersion{Group: "entity.example.com", Version: "v1"}
	scheme.AddKnownTypes(version, &Entity{}, &EntityList{})
	metav1.AddToGroupVersion(scheme, version)
	return nil
}
