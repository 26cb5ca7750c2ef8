package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// wanted is what a flag's value has to be, by the type that it has in its library.
var wanted = map[string]string{
	"int":      "whole number",
	"uint64":   "whole number of 0 or more",
	"duration": "duration: write a number and s, m or h, as in 90s",
	"bool":     "yes or no: write true or false, or the flag alone for true",
}

// flagValue says what is wrong with a flag's value in the words of who typed it, where the library has those of the function that reads it.
func flagValue(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	want, known := wanted[bad.GetFlag().Value.Type()]
	if !known {
		return err
	}
	if errors.Is(bad, strconv.ErrRange) {
		return fmt.Errorf("--%s: %q is more than a number here can be", bad.GetFlag().Name, bad.GetValue())
	}
	return fmt.Errorf("--%s: %q is no %s", bad.GetFlag().Name, bad.GetValue(), want)
}
