//! What `fields` may have cut down: all of it, or some of its fields. Only the schemas are used.

use std::borrow::Cow;

use utoipa::openapi::schema::{AnyOfBuilder, ObjectBuilder};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::run::{Run, RunSummary};

macro_rules! masked {
    ($($name:ident of $whole:ident;)+) => {$(
        pub(crate) struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let some = ObjectBuilder::new().description(Some("with `fields`: only those"));
                AnyOfBuilder::new().item(Ref::from_schema_name($whole::name())).item(some).into()
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
                schemas.push(($whole::name().into(), $whole::schema()));
                $whole::schemas(schemas);
            }
        }
    )+};
}

masked! {
    MaskedRun of Run;
    MaskedSummary of RunSummary;
}
