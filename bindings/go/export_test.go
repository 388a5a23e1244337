package weft

// EndTime is endTime, for tests.
var EndTime = &endTime
