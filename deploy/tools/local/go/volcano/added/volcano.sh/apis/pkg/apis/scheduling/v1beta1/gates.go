package v1beta1

// QueueAllocationGateKey is the one thing that Volcano 1.15.1 uses of its API's module and v1.14.0 of it does not have.
const QueueAllocationGateKey = GroupName + "/queue-allocation-gate"
