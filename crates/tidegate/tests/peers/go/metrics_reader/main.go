// Reads metrics in the format of Protocol Buffers from a file, with Prometheus's own description of the messages, and
// writes a line for each sample. Argument: the file.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"
)

func main() {
	file, err := os.Open(os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	input := bufio.NewReader(file)
	for {
		family := &dto.MetricFamily{}
		err := protodelim.UnmarshalFrom(input, family)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			fmt.Println("malformed:", err)
			os.Exit(1)
		}
		for _, metric := range family.Metric {
			labels := ""
			for _, label := range metric.Label {
				labels += fmt.Sprintf(" %s=%s", label.GetName(), label.GetValue())
			}
			fmt.Println(family.GetName()+labels, family.GetType(), value(metric))
		}
	}
}

func value(metric *dto.Metric) string {
	switch {
	case metric.Counter != nil:
		return fmt.Sprint(metric.Counter.GetValue())
	case metric.Gauge != nil:
		return fmt.Sprint(metric.Gauge.GetValue())
	case metric.Histogram != nil:
		return histogram(metric.Histogram)
	}
	return "nothing"
}

// Shows the count, the number of buckets with bounds, and how many durations the native buckets hold and the bounds of
// the first and the last of them.
func histogram(one *dto.Histogram) string {
	index, count := int32(0), int64(0)
	sum, at := int64(one.GetZeroCount()), 0
	first, last := math.NaN(), math.NaN()
	base := math.Exp2(math.Exp2(-float64(one.GetSchema())))
	for _, span := range one.PositiveSpan {
		index += span.GetOffset()
		for range make([]struct{}, span.GetLength()) {
			count += one.PositiveDelta[at]
			sum += count
			last = math.Pow(base, float64(index))
			if at == 0 {
				first = last
			}
			at++
			index++
		}
	}
	return fmt.Sprintf("count %d buckets %d native %d schema %d zero %g from %.6f to %.6f",
		one.GetSampleCount(), len(one.Bucket), sum, one.GetSchema(), one.GetZeroThreshold(), first, last)
}
