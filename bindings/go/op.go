package weft

type op struct{}

func (m *Model) caused(err error) error { return caused(m.ops, err) }

func caused(ops []*op, err error) error { return err }
