//! The messages of an event file that are written: the fields of `tensorflow/core/util/event.proto`,
//! `tensorflow/core/framework/summary.proto`, `tensor.proto` and `tensor_shape.proto` that they need, by their numbers there.

/// The version of the format, which the first event of a file says. From it on a session's start drops what was written
/// from its step on.
const VERSION: &str = "brain.Event:2";
/// `SessionLog.SessionStatus.START`.
const START: i32 = 1;
/// `DataType.DT_STRING`.
const DT_STRING: i32 = 7;
/// The plugin that shows texts, by the name of which it finds them.
const TEXT: &str = "text";
/// `DataClass.DATA_CLASS_TENSOR`.
const DATA_CLASS_TENSOR: i32 = 2;

/// `tensorflow.Event`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Event {
    /// Unix time in seconds.
    #[prost(double, tag = "1")]
    pub wall_time: f64,
    /// Where it lies on the axis.
    #[prost(int64, tag = "2")]
    pub step: i64,
    /// What it says.
    #[prost(oneof = "What", tags = "3, 5, 7")]
    pub what: Option<What>,
}

/// What an event says.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum What {
    /// Of the format.
    #[prost(string, tag = "3")]
    FileVersion(String),
    /// Values.
    #[prost(message, tag = "5")]
    Summary(Summary),
    /// The start of a session.
    #[prost(message, tag = "7")]
    SessionLog(SessionLog),
}

/// `tensorflow.SessionLog`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SessionLog {
    /// A `SessionStatus`.
    #[prost(int32, tag = "1")]
    pub status: i32,
}

/// `tensorflow.Summary`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Summary {
    /// One for each tag.
    #[prost(message, repeated, tag = "1")]
    pub value: Vec<Value>,
}

/// `tensorflow.Summary.Value`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Value {
    /// Of which series.
    #[prost(string, tag = "1")]
    pub tag: String,
    /// Who shows it; a scalar needs none.
    #[prost(message, optional, tag = "9")]
    pub metadata: Option<Metadata>,
    /// It.
    #[prost(oneof = "Content", tags = "2, 8")]
    pub content: Option<Content>,
}

/// The value of a tag.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Content {
    /// A scalar.
    #[prost(float, tag = "2")]
    SimpleValue(f32),
    /// A text.
    #[prost(message, tag = "8")]
    Tensor(Tensor),
}

/// `tensorflow.SummaryMetadata`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Metadata {
    /// Whose it is.
    #[prost(message, optional, tag = "1")]
    pub plugin_data: Option<PluginData>,
    /// A `DataClass`.
    #[prost(int32, tag = "4")]
    pub data_class: i32,
}

/// `tensorflow.SummaryMetadata.PluginData`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PluginData {
    /// The plugin.
    #[prost(string, tag = "1")]
    pub plugin_name: String,
}

/// `tensorflow.TensorProto`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Tensor {
    /// A `DataType`.
    #[prost(int32, tag = "1")]
    pub dtype: i32,
    /// Without a dimension: one value.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<Shape>,
    /// Values of `DT_STRING`.
    #[prost(bytes = "vec", repeated, tag = "8")]
    pub string_val: Vec<Vec<u8>>,
}

/// `tensorflow.TensorShapeProto` of no dimension.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Shape {}

impl Event {
    /// The first event of a file.
    pub fn version(wall_time: f64) -> Self {
        let what = Some(What::FileVersion(VERSION.to_owned()));
        Self {
            wall_time,
            step: 0,
            what,
        }
    }

    /// Nothing of what was written before counts from a step on.
    pub fn session_start(wall_time: f64, step: u64) -> Self {
        Self::at(
            wall_time,
            step,
            What::SessionLog(SessionLog { status: START }),
        )
    }

    /// Values at a step.
    pub fn summary(wall_time: f64, step: u64, summary: Summary) -> Self {
        Self::at(wall_time, step, What::Summary(summary))
    }

    fn at(wall_time: f64, step: u64, what: What) -> Self {
        Self {
            wall_time,
            step: i64::try_from(step).unwrap_or(i64::MAX),
            what: Some(what),
        }
    }
}

impl Summary {
    /// One text, in Markdown.
    pub fn text(tag: &str, text: String) -> Self {
        let tensor = Tensor {
            dtype: DT_STRING,
            shape: Some(Shape {}),
            string_val: vec![text.into_bytes()],
        };
        let metadata = Metadata {
            plugin_data: Some(PluginData {
                plugin_name: TEXT.to_owned(),
            }),
            data_class: DATA_CLASS_TENSOR,
        };
        Self {
            value: vec![Value {
                tag: tag.to_owned(),
                metadata: Some(metadata),
                content: Some(Content::Tensor(tensor)),
            }],
        }
    }

    /// A scalar more.
    pub fn scalar(&mut self, tag: &str, value: f64) {
        self.value.push(Value {
            tag: tag.to_owned(),
            metadata: None,
            // What the format has; TensorBoard shows no more digits.
            content: Some(Content::SimpleValue(value as f32)),
        });
    }
}
