// Package shared holds what the spec and the status have in every version.
// +kubebuilder:object:generate=true
package shared

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Spec is inlined in the spec of each version.
type Spec struct {
	Username           string            `json:"username"`
	Description        string            `json:"description,omitempty"`
	Team               string            `json:"team,omitempty"`
	Project            string            `json:"project,omitempty"`
	Environment        string            `json:"environment,omitempty"`
	Region             string            `json:"region,omitempty"`
	Zone               string            `json:"zone,omitempty"`
	CostCenter         string            `json:"costCenter,omitempty"`
	Image              string            `json:"image,omitempty"`
	Version            string            `json:"version,omitempty"`
	LogLevel           string            `json:"logLevel,omitempty"`
	Schedule           string            `json:"schedule,omitempty"`
	Timezone           string            `json:"timezone,omitempty"`
	StorageClass       string            `json:"storageClass,omitempty"`
	ServiceAccountName string            `json:"serviceAccountName,omitempty"`
	PriorityClassName  string            `json:"priorityClassName,omitempty"`
	ClusterDomain      string            `json:"clusterDomain,omitempty"`
	Replicas           *int32            `json:"replicas,omitempty"`
	MinReplicas        *int32            `json:"minReplicas,omitempty"`
	MaxReplicas        *int32            `json:"maxReplicas,omitempty"`
	Port               int32             `json:"port,omitempty"`
	TimeoutSeconds     int32             `json:"timeoutSeconds,omitempty"`
	Retries            int32             `json:"retries,omitempty"`
	RetentionDays      int32             `json:"retentionDays,omitempty"`
	QuotaMiB           int64             `json:"quotaMiB,omitempty"`
	Paused             *bool             `json:"paused,omitempty"`
	Roles              []string          `json:"roles,omitempty"`
	Groups             []string          `json:"groups,omitempty"`
	Tags               []string          `json:"tags,omitempty"`
	AllowedCIDRs       []string          `json:"allowedCIDRs,omitempty"`
	Weights            []int32           `json:"weights,omitempty"`
	NodeSelector       map[string]string `json:"nodeSelector,omitempty"`
	Parameters         map[string]string `json:"parameters,omitempty"`
	Env                []EnvVar          `json:"env,omitempty"`
	Endpoints          []Endpoint        `json:"endpoints,omitempty"`
	Rules              []Rule            `json:"rules,omitempty"`
}

// EnvVar is one variable.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

// Endpoint is one address.
type Endpoint struct {
	Name     string `json:"name"`
	Host     string `json:"host"`
	Port     int32  `json:"port"`
	Protocol string `json:"protocol,omitempty"`
	Weight   int32  `json:"weight,omitempty"`
}

// Rule is one rule.
type Rule struct {
	Name      string   `json:"name"`
	Resources []string `json:"resources,omitempty"`
	Verbs     []string `json:"verbs,omitempty"`
	Priority  int32    `json:"priority,omitempty"`
	Enabled   *bool    `json:"enabled,omitempty"`
}

// Status is the status of each version.
type Status struct {
	Phase              string             `json:"phase,omitempty"`
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}
